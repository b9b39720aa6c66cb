package deploy_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type dashboard struct {
	Title, UID string
	Panels     []panel
	Templating struct {
		List []struct {
			Name, Type string
			Query      any
		}
	}
}

type panel struct {
	Type, Title, Description string
	Datasource               struct{ Type, UID string }
	FieldConfig              struct{ Defaults struct{ Unit string } }
	Targets                  []struct{ RefID, Expr, LegendFormat string }
}

// The dashboards show relays, and consumers.
func TestDashboards(t *testing.T) {
	t.Parallel()
	checkDashboard(t, "grafana/fanout.json", "Fanout fanout", "fanout_outbox_")
	checkDashboard(t, "grafana/fanout-consumers.json", "Fanout consumers fanout-consumers", "fanout_inbox_")
}

// checkDashboard reports panels that ask for missing series, and series with the prefix that no panel shows.
func checkDashboard(t *testing.T, path, named, prefix string) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var board dashboard
	require.NoError(t, json.Unmarshal(text, &board))
	assert.Equal(t, named, board.Title+" "+board.UID)

	found := scrape(t)
	variables := map[string]bool{"__rate_interval": true}
	for _, variable := range board.Templating.List {
		variables[variable.Name] = true
		if variable.Type == "query" {
			query, _ := variable.Query.(map[string]any)["query"].(string)
			parts := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`).FindStringSubmatch(query)
			require.NotNil(t, parts, query)
			assert.Contains(t, found[parts[1]], parts[2])
		}
	}
	assert.Len(t, variables, 4)

	asked := map[string]bool{}
	for _, p := range board.Panels {
		if p.Type == "row" {
			continue
		}
		assert.NotEmpty(t, p.Title)
		assert.NotEmpty(t, p.Description, p.Title)
		assert.NotEmpty(t, p.FieldConfig.Defaults.Unit, p.Title)
		assert.Equal(t, "prometheus ${datasource}", p.Datasource.Type+" "+p.Datasource.UID)
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			for _, name := range regexp.MustCompile(`\$(\w+)`).FindAllStringSubmatch(target.Expr, -1) {
				assert.True(t, variables[name[1]], "%s: there is no variable %s", p.Title, name[1])
			}
			assert.NotEmpty(t, target.LegendFormat)
			expr := regexp.MustCompile(`\$(database|broker|consumer|source)`).ReplaceAllString(strings.ReplaceAll(target.Expr, "$__rate_interval", "5m"), ".*")
			found.check(t, expr)
			for name := range found {
				if regexp.MustCompile(`\b` + name + `\b`).MatchString(expr) {
					asked[name] = true
				}
			}
		}
	}
	for name := range found { // histograms are asked for by one of their three
		base := regexp.MustCompile("_(bucket|sum|count)$").ReplaceAllString(name, "")
		shown := asked[name] || asked[base+"_bucket"] || asked[base+"_sum"]
		if strings.HasPrefix(name, prefix) && !strings.Contains(name, "claimed") {
			assert.True(t, shown, "no panel shows %s", name)
		}
	}
}
