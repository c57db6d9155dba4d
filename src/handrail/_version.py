"""The version of this package: its one source, which the build reads too."""

__version__ = "0.1.0"
