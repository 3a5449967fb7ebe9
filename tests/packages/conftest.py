from tests.results.conftest import engine

__all__ = ["engine"]
