"""What a Flex Template's launcher runs: `shardwright build`, as a file."""

import sys

from pipelines.build_dataset import main

sys.exit(main())
