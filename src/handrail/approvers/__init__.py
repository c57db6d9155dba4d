"""Who is asked; one file per way of asking."""
