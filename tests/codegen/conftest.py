import pytest


@pytest.fixture(autouse=True)
def several_threads(request: pytest.FixtureRequest) -> None:
    """All tests here but those of the text, which is as shipped."""
    if request.path.name != "test_golden.py":
        request.getfixturevalue("small_regions_have_a_team")
