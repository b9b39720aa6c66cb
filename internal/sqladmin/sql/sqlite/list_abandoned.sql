-- One page of abandoned rows, the last first.
{{include part_list_finished}}
