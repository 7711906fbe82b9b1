import pytest


@pytest.fixture(autouse=True)
def several_threads(small_regions_have_a_team: None) -> None:
    """In all tests here."""
