"""What nodes say to each other about sessions, and who they say has which; node/links/sessions.py moves them."""
