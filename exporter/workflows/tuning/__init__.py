"""The search for a model: ways to prune, what is measured of them, and the choice; `compile` stands below it."""
