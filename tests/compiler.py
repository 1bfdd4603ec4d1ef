"""The C compiler that makes the library of faulty disks."""

import shutil

COMPILER = shutil.which("gcc")
HOW_TO_GET_A_COMPILER = "There is no gcc: disks that fail were not tried. apt-get install gcc libc6-dev"
