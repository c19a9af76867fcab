"""What a few hundred images tell of a model: how much each patch matters later on, and how alike patches are."""
