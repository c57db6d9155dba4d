"""The commands, one file each; every file has its click command under the name `command`."""
