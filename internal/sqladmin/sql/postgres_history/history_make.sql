-- Make the partitions of the days ahead, and say for how long they last: see part_history_make.sql.
{{include part_history_make}}
