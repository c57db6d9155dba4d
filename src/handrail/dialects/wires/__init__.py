"""Providers' HTTP forms, one file each; `base` has what they share."""
