-- One page of abandoned rows, the last first.
{{include part_list_begin}}
{{include part_list_finished}}
{{include part_list_end}}
