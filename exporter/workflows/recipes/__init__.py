"""How much to prune and with what settings: a recipe, and the records that it is resolved into."""
