// SPDX-License-Identifier: GPL-2.0-only
/*
 * Mailboxes.  A message is copied into the sender's outbox, whose work item copies
 * it into the next buffer of the receiver's inbox; a work item of that one tells
 * its owner.  Messages from one mailbox arrive in order.  Where no buffer is free
 * the sender's outbox waits, as hardware is told RETRY, and loses the message after
 * a second.  What comes from outside of the kernel waits in a list of its inbox.
 *
 * Owners are told with bottom halves off: rionet takes locks in its callback that
 * it also takes where packets are sent, and hands packets to the network there.
 */
#include <linux/bottom_half.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "rio_soft.h"

/* A buffer stays empty: rionet, whose ring would be full, could not tell that from empty. */
static bool inbox_has_room(struct rs_inbox *inbox)
{
	return inbox->buffers > 1;
}

static bool can_proceed(struct rs_inbox *inbox)
{
	unsigned long flags;
	bool result;

	spin_lock_irqsave(&inbox->lock, flags);
	result = !inbox->is_open || inbox_has_room(inbox);
	spin_unlock_irqrestore(&inbox->lock, flags);
	return result;
}

static bool put_message(struct rs_inbox *inbox, const void *data, size_t bytes)
{
	unsigned long flags;
	bool is_put = false;
	u8 *buffer;

	spin_lock_irqsave(&inbox->lock, flags);
	if (inbox->is_open && inbox_has_room(inbox)) {
		buffer = inbox->ring[inbox->filled];
		memcpy(buffer, data, bytes);
		/* Owners hand on whole buffers: nothing that was there before may go along. */
		memset(buffer + bytes, 0, RIO_MAX_MSG_SIZE - bytes);
		inbox->filled = (inbox->filled + 1) % inbox->entries;
		inbox->buffers--;
		inbox->messages++;
		queue_work(inbox->port->work, &inbox->work);
		is_put = true;
	}
	spin_unlock_irqrestore(&inbox->lock, flags);
	return is_put;
}

static void tell_receiver(struct work_struct *work)
{
	struct rs_inbox *inbox = container_of(work, struct rs_inbox, work);
	struct rio_mport *mport = &inbox->port->mport;

	local_bh_disable();
	if (mport->inb_msg[inbox->mbox].mcback)
		mport->inb_msg[inbox->mbox].mcback(mport, inbox->dev_id, inbox->mbox, 0);
	local_bh_enable();
}

static void deliver(struct rs_inbox *inbox, const void *data, size_t bytes)
{
	long left = msecs_to_jiffies(RS_MESSAGE_WAIT_MS);

	while (!put_message(inbox, data, bytes)) {
		left = wait_event_timeout(inbox->room, can_proceed(inbox), left);
		if (left == 0 || !READ_ONCE(inbox->is_open)) {
			rs_count(inbox->port, RS_LOST_MESSAGES);
			return;
		}
	}
}

static void send_letter(struct rs_outbox *outbox, const struct rs_letter *letter)
{
	struct rs_port *from = outbox->port;
	struct rs_port *to;

	if (from->link) {
		if (rs_link_message(from, letter->destid, outbox->mbox, letter->data,
				    letter->bytes))
			rs_count(from, RS_LOST_MESSAGES);
		return;
	}
	to = rs_route(from, letter->destid);
	if (to)
		deliver(&to->inboxes[outbox->mbox], letter->data, letter->bytes);
	else
		rs_count(from, RS_LOST_MESSAGES);
}

struct outside_letter {
	struct list_head node;
	size_t bytes;
	void *data;
};

static void deliver_letters(struct work_struct *work)
{
	struct rs_inbox *inbox = container_of(work, struct rs_inbox, letter_work);
	struct outside_letter *letter;

	for (;;) {
		spin_lock_irq(&inbox->lock);
		letter = list_first_entry_or_null(&inbox->letters, struct outside_letter, node);
		if (letter) {
			list_del(&letter->node);
			inbox->letter_count--;
		}
		spin_unlock_irq(&inbox->lock);
		if (!letter)
			return;
		deliver(inbox, letter->data, letter->bytes);
		kfree(letter->data);
		kfree(letter);
	}
}

int rs_queue_letter(struct rs_port *port, int mbox, void *data, size_t bytes)
{
	struct rs_inbox *inbox = &port->inboxes[mbox];
	struct outside_letter *letter = kmalloc(sizeof(*letter), GFP_KERNEL);
	int error = 0;

	if (!letter)
		return -ENOMEM;
	letter->data = data;
	letter->bytes = bytes;
	spin_lock_irq(&inbox->lock);
	if (inbox->letter_count < RS_LETTERS) {
		list_add_tail(&letter->node, &inbox->letters);
		inbox->letter_count++;
		queue_work(port->work, &inbox->letter_work);
	} else {
		error = -EAGAIN;
	}
	spin_unlock_irq(&inbox->lock);
	if (error) {
		rs_count(port, RS_LOST_MESSAGES);
		kfree(letter);
	}
	return error;
}

static void send_letters(struct work_struct *work)
{
	struct rs_outbox *outbox = container_of(work, struct rs_outbox, work);
	struct rio_mport *mport = &outbox->port->mport;
	unsigned int slot;

	spin_lock_irq(&outbox->lock);
	while (outbox->is_open && outbox->count) {
		slot = outbox->tail;
		spin_unlock_irq(&outbox->lock);
		send_letter(outbox, &outbox->letters[slot]);
		spin_lock_irq(&outbox->lock);
		slot = (slot + 1) % outbox->entries;
		outbox->tail = slot;
		outbox->count--;
		spin_unlock_irq(&outbox->lock);
		/* The slot behind the last that was sent; one at a time: full is not empty. */
		local_bh_disable();
		if (mport->outb_msg[outbox->mbox].mcback)
			mport->outb_msg[outbox->mbox].mcback(mport, outbox->dev_id, outbox->mbox,
							     slot);
		local_bh_enable();
		spin_lock_irq(&outbox->lock);
	}
	spin_unlock_irq(&outbox->lock);
}

void rs_messages_init(struct rs_port *port)
{
	int mbox;

	for (mbox = 0; mbox < RIO_MAX_MBOX; mbox++) {
		struct rs_outbox *outbox = &port->outboxes[mbox];
		struct rs_inbox *inbox = &port->inboxes[mbox];

		spin_lock_init(&outbox->lock);
		INIT_WORK(&outbox->work, send_letters);
		outbox->port = port;
		outbox->mbox = mbox;
		spin_lock_init(&inbox->lock);
		init_waitqueue_head(&inbox->room);
		INIT_WORK(&inbox->work, tell_receiver);
		INIT_LIST_HEAD(&inbox->letters);
		INIT_WORK(&inbox->letter_work, deliver_letters);
		inbox->port = port;
		inbox->mbox = mbox;
	}
}

static bool are_entries_valid(int mbox, int entries)
{
	return mbox >= 0 && mbox < RIO_MAX_MBOX && entries >= 2 && entries <= RS_MAX_ENTRIES;
}

static void free_letters(struct rs_letter *letters, unsigned int entries)
{
	unsigned int i;

	for (i = 0; letters && i < entries; i++)
		kfree(letters[i].data);
	kvfree(letters);
}

int rs_open_outbox(struct rio_mport *mport, void *dev_id, int mbox, int entries)
{
	struct rs_port *port = to_rs_port(mport);
	struct rs_outbox *outbox;
	struct rs_letter *letters;
	int i;

	if (!are_entries_valid(mbox, entries))
		return -EINVAL;
	outbox = &port->outboxes[mbox];
	letters = kvcalloc(entries, sizeof(*letters), GFP_KERNEL);
	if (!letters)
		return -ENOMEM;
	for (i = 0; i < entries; i++) {
		letters[i].data = kmalloc(RIO_MAX_MSG_SIZE, GFP_KERNEL);
		if (!letters[i].data) {
			free_letters(letters, entries);
			return -ENOMEM;
		}
	}
	__module_get(THIS_MODULE);
	spin_lock_irq(&outbox->lock);
	outbox->letters = letters;
	outbox->entries = entries;
	outbox->head = 0;
	outbox->tail = 0;
	outbox->count = 0;
	outbox->dev_id = dev_id;
	outbox->is_open = true;
	spin_unlock_irq(&outbox->lock);
	return 0;
}

void rs_close_outbox(struct rio_mport *mport, int mbox)
{
	struct rs_outbox *outbox;

	if (mbox < 0 || mbox >= RIO_MAX_MBOX)
		return;
	outbox = &to_rs_port(mport)->outboxes[mbox];
	spin_lock_irq(&outbox->lock);
	if (!outbox->is_open) {
		spin_unlock_irq(&outbox->lock);
		return;
	}
	outbox->is_open = false;
	spin_unlock_irq(&outbox->lock);
	cancel_work_sync(&outbox->work);
	free_letters(outbox->letters, outbox->entries);
	outbox->letters = NULL;
	module_put(THIS_MODULE);
}

/*
 * Its callers count a slot whatever this returns, and their next calls rely on it:
 * what can be sent is taken, even if nobody has that id.
 */
int rs_add_outbound(struct rio_mport *mport, struct rio_dev *rdev, int mbox, void *data,
		    size_t bytes)
{
	struct rs_outbox *outbox;
	struct rs_letter *letter;
	unsigned long flags;
	int error = 0;

	if (mbox < 0 || mbox >= RIO_MAX_MBOX || bytes == 0 || bytes > RIO_MAX_MSG_SIZE)
		return -EINVAL;
	outbox = &to_rs_port(mport)->outboxes[mbox];
	spin_lock_irqsave(&outbox->lock, flags);
	if (!outbox->is_open) {
		error = -EINVAL;
	} else if (outbox->count == outbox->entries) {
		error = -EBUSY;
	} else {
		letter = &outbox->letters[outbox->head];
		letter->destid = rdev->destid;
		letter->bytes = bytes;
		memcpy(letter->data, data, bytes);
		outbox->head = (outbox->head + 1) % outbox->entries;
		outbox->count++;
		queue_work(outbox->port->work, &outbox->work);
	}
	spin_unlock_irqrestore(&outbox->lock, flags);
	return error;
}

int rs_open_inbox(struct rio_mport *mport, void *dev_id, int mbox, int entries)
{
	struct rs_inbox *inbox;
	void **ring;

	if (!are_entries_valid(mbox, entries))
		return -EINVAL;
	inbox = &to_rs_port(mport)->inboxes[mbox];
	ring = kvcalloc(entries, sizeof(*ring), GFP_KERNEL);
	if (!ring)
		return -ENOMEM;
	__module_get(THIS_MODULE);
	spin_lock_irq(&inbox->lock);
	inbox->ring = ring;
	inbox->entries = entries;
	inbox->added = 0;
	inbox->filled = 0;
	inbox->taken = 0;
	inbox->buffers = 0;
	inbox->messages = 0;
	inbox->dev_id = dev_id;
	inbox->is_open = true;
	spin_unlock_irq(&inbox->lock);
	return 0;
}

void rs_close_inbox(struct rio_mport *mport, int mbox)
{
	struct rs_inbox *inbox;

	if (mbox < 0 || mbox >= RIO_MAX_MBOX)
		return;
	inbox = &to_rs_port(mport)->inboxes[mbox];
	spin_lock_irq(&inbox->lock);
	if (!inbox->is_open) {
		spin_unlock_irq(&inbox->lock);
		return;
	}
	WRITE_ONCE(inbox->is_open, false);
	spin_unlock_irq(&inbox->lock);
	wake_up_all(&inbox->room);
	cancel_work_sync(&inbox->work);
	kvfree(inbox->ring);	/* the buffers are the owner's */
	inbox->ring = NULL;
	module_put(THIS_MODULE);
}

int rs_add_inbound(struct rio_mport *mport, int mbox, void *buffer)
{
	struct rs_inbox *inbox;
	unsigned long flags;
	int error = 0;

	if (mbox < 0 || mbox >= RIO_MAX_MBOX || !buffer)
		return -EINVAL;
	inbox = &to_rs_port(mport)->inboxes[mbox];
	spin_lock_irqsave(&inbox->lock, flags);
	if (!inbox->is_open || inbox->buffers + inbox->messages == inbox->entries) {
		error = -EINVAL;
	} else {
		inbox->ring[inbox->added] = buffer;
		inbox->added = (inbox->added + 1) % inbox->entries;
		inbox->buffers++;
	}
	spin_unlock_irqrestore(&inbox->lock, flags);
	if (!error)
		wake_up(&inbox->room);
	return error;
}

void *rs_take_inbound(struct rio_mport *mport, int mbox)
{
	struct rs_inbox *inbox;
	unsigned long flags;
	void *message = NULL;

	if (mbox < 0 || mbox >= RIO_MAX_MBOX)
		return NULL;
	inbox = &to_rs_port(mport)->inboxes[mbox];
	spin_lock_irqsave(&inbox->lock, flags);
	if (inbox->is_open && inbox->messages) {
		message = inbox->ring[inbox->taken];
		inbox->taken = (inbox->taken + 1) % inbox->entries;
		inbox->messages--;
	}
	spin_unlock_irqrestore(&inbox->lock, flags);
	return message;
}
