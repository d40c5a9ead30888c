// Where channels are to be opened instead of a socket. A server leaves a card: a symbolic link whose target is the
// address of its channels' listener. That of a path stands beside the path; that of a port in a folder of this user,
// host and network namespace. Other hosts are named by INCAST_ROOT_HOSTS.
#pragma once

#include <string>

#include "settings.h"

namespace incast_root {

/// `shm://...`, `rio://...`, `verbs://...`: an address of a channel.
bool is_channel_address(const std::string& text);
/// An address of this host, or a name of one.
bool is_this_host(const std::string& host);

/// Where channels are opened in place of a socket to that port; empty: nowhere.
std::string place_of_port(const Settings& settings, const std::string& host, int port);
/// The same of a path.
std::string place_of_path(const std::string& path);

/// The path of the card; empty, with errno, if there can be none.
std::string card_of_port(int port);
std::string card_of_path(const std::string& path);
/// False, with errno: it could not be written. One that is there is replaced: its server has gone.
bool write_card(const std::string& card, const std::string& address);

}  // namespace incast_root
