"""Arguments that users give: their order, their values, and their tokens in keys."""
