package config_test

import (
	"strings"
	"testing"
)

func TestDocumentsThatAreNoConfiguration(t *testing.T) {
	t.Parallel()
	const empty = "1:1: the configuration is empty"
	checkBadInputs(t, []badInput{
		{"nothing", "", []string{empty}},
		{"comments only", "# outbox:\n", []string{empty}},
		{"marker only", "---\n", []string{empty}},
		{"null", "~\n", []string{empty}},
		{"a list", "- outbox\n", []string{"1:1: must be a mapping of keys, but is a list"}},
		{"a text", "outbox\n", []string{"1:1: must be a mapping of keys, but is a text"}},
		{"two documents", "outbox: {}\n---\ncleanup: {}\n", []string{"2:1: a second document begins here: a file holds one configuration"}},
		{"an empty second document", "outbox: {}\n---\n", []string{"2:1: a second document begins here: a file holds one configuration"}},
		{"after the end marker", "outbox: {}\n...\ncleanup: {}\n", []string{"3:1: a second document begins here: a file holds one configuration"}},
		{"tab in front of a key", "outbox:\n  lease: 5m\n\tworkers: 3\n", []string{"3:1: YAML syntax: the line is indented with a tab: use spaces"}},
		{"tab behind spaces", "outbox:\n  lease: 5m\n \tworkers: 3\n", []string{"3:2: YAML syntax: the line is indented with a tab: use spaces"}},
		{"too much indentation", "outbox:\n  lease: 5m\n   workers: 3\n", []string{"2:10: YAML syntax: mapping value is not allowed in this context"}},
		{"no colon", "outbox:\n  lease: 5m\n  workers 3\n", []string{"3:3: YAML syntax: non-map value is specified"}},
		{"open bracket", "brokers: {}\noutbox: [\n", []string{"2:9: YAML syntax: sequence end token ']' not found"}},
		{"open quote", "brokers: {}\noutbox: \"x\n", []string{"2:9: YAML syntax: could not find end character of double-quoted text"}},
		{"unquoted variable", "outbox: {table: ${TABLE}}\n", []string{`1:18: YAML syntax: ',' or '}' must be specified; "${...}" needs quotes between { } and [ ]`}},
		{"parser quotes the file", "brokers: |hunter2\n  x\n", []string{"1:10: YAML syntax: invalid header option"}},
		{"no text", "outbox: {}\n# \xff\n", []string{"2:3: is not UTF-8 text"}},
		{"control character", "outbox: {}\n\x01\n", []string{"2:1: a control character is not allowed here"}},
		{"deep", strings.Repeat("[", 101), []string{"1:101: is nested too deeply"}},
		{"deep with dashes", "\n" + strings.Repeat("-  ", 101) + "x", []string{"2:1: is nested too deeply"}},
		{"huge", strings.Repeat("#", 200_000), []string{"1:1: the file has 200000 bytes: a configuration has at most 131072"}},
		{"merge key", "outbox:\n  <<: {lease: 5m}" + brokersSection, []string{"2:3: outbox: merge keys (<<) are not supported: write the keys out"}},
		{"tag", "outbox: !mine {lease: 5m}" + brokersSection, []string{"1:9: outbox: tags (!) are not supported: write the value without one"}},
		{"no such anchor", "outbox: {lease: *hunter2}" + brokersSection, []string{"1:17: outbox.lease: no anchor (&) has this name; quote a text that begins with *"}},
		{"anchor twice", "outbox: &x {}\ncleanup: &x {}" + brokersSection, []string{"2:10: an anchor (&) is defined twice: give each a name of its own"}},
		{"keys twice", "outbox:\n  lease: 5m\n  lease: 6m\noutbox: {}" + brokersSection, []string{
			`3:3: outbox: duplicate key "lease": the first one is in line 2`,
			`4:1: duplicate key "outbox": the first one is in line 1`,
		}},
		{"sections of a wrong type", "databases: 5\noutbox: []\nbrokers: x\ncleanup: true\n", []string{
			"1:12: databases: must be a mapping of keys, but is a number",
			"2:9: outbox: must be a mapping of keys, but is a list",
			"3:10: brokers: must be a mapping of keys, but is a text",
			"4:10: cleanup: must be a mapping of keys, but is true or false",
		}},
		{"unknown sections", "outbx: {}\nCleanup: {}\nzzz: 1\npostgres://u:hunter2@h: 1" + brokersSection, []string{
			`1:1: unknown key "outbx": did you mean "outbox"?`,
			`2:1: unknown key "Cleanup": did you mean "cleanup"?`,
			`3:1: unknown key "zzz": use databases, tenants, consumers, outbox, brokers, cleanup or monitor`,
			`4:1: unknown key (not shown: it may be a secret): use databases, tenants, consumers, outbox, brokers, cleanup or monitor`,
		}},
	})
}
