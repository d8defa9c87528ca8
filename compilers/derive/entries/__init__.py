"""The language of recursions: values, terms, labels, and what rewrites them."""
