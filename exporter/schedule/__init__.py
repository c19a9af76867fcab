"""How many patches each layer keeps, and what that saves."""
