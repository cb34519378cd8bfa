"""What is kept, and why something was not found."""
