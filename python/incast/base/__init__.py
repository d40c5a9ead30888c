"""What every room needs: errors of one line, files that a full disk cannot tear, figures as people read them."""
