"""What Firstwrite costs, measured."""
