"""The machine a region is compiled for: all that is known of a CPU, and where that is known from."""

from convoy.target.instructions import InstructionSet
from convoy.target.machines import MACHINES
from convoy.target.names import AskLLVM, cpu_name, from_mcpu
from convoy.target.target import Target
from convoy.target.this_machine import host

__all__ = ["MACHINES", "AskLLVM", "InstructionSet", "Target", "cpu_name", "from_mcpu", "host"]
