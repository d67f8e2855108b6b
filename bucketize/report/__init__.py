"""A page about an executable: its frames, and the pictures, tables and words made of them."""
