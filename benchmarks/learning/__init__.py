"""The figures of docs/learning.md: which policy learns fastest where, and where none of them does well.

`cases` says what is compared, `runs` plays it on all cores, `tables` prints it or writes it into the page.
"""

import os

# One process a core: threads of BLAS would wait for each other. numpy reads this when it is imported.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
