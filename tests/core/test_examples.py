"""The examples in the docstrings of the core run and print what they show."""

import doctest
import importlib
import pkgutil

import pytest

import pricemesh.core
from pricemesh.core.policies import POLICIES

MODULES = [module.name for module in pkgutil.walk_packages(pricemesh.core.__path__, prefix="pricemesh.core.")]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_print_what_they_show(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize("policy", POLICIES)
def test_the_file_of_every_policy_opens_with_an_example(policy: str) -> None:
    module = importlib.import_module(POLICIES[policy].__module__)
    assert doctest.DocTestParser().get_examples(module.__doc__ or "")
