"""What differs between two profiles: computed from readings alone, measuring nothing."""
