"""Array kernels over columns, ignorant of what these mean; pages and memory."""
