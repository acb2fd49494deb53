"""Run `shardwright build`, as the Python file that a Flex Template's launcher needs."""

import sys

from shardwright.pipelines.commands.build import main

sys.exit(main())
