-- One page of published rows, the last first.
{{include part_list_finished}}
