"""One straight path per verb."""
