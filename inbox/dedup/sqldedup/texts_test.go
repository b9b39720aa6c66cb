package sqldedup

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/glebarez/sqlite"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/postgres"
	"gorm.io/driver/sqlserver"
	"gorm.io/gorm"
)

// nowhere is a connection that leads nowhere: texts are made, and not sent.
type nowhere struct{}

var errNowhere = errors.New("nowhere")

func (nowhere) PrepareContext(context.Context, string) (*sql.Stmt, error) { return nil, errNowhere }
func (nowhere) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	return nil, errNowhere
}

func (nowhere) QueryContext(context.Context, string, ...any) (*sql.Rows, error) {
	return nil, errNowhere
}
func (nowhere) QueryRowContext(context.Context, string, ...any) *sql.Row { return nil }

// GORM replaces every named parameter, and each text begins with a comment, so that dbresolver sends it to the primary.
func TestTexts(t *testing.T) {
	t.Parallel()
	for name, dialector := range map[string]gorm.Dialector{
		"postgres":  postgres.New(postgres.Config{Conn: nowhere{}}),
		"sqlserver": sqlserver.New(sqlserver.Config{Conn: nowhere{}}),
		"sqlite":    sqlite.Open(filepath.Join(t.TempDir(), "texts.db")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, err := gorm.Open(dialector, &gorm.Config{DryRun: true, DisableAutomaticPing: true})
			require.NoError(t, err)
			if pool, ok := db.ConnPool.(*sql.DB); ok {
				defer pool.Close()
			}
			texts, err := newTexts(name, "app."+DefaultTable)
			require.NoError(t, err)
			at := texts.time(time.Unix(1, 1500))
			for _, c := range []struct {
				name, text string
				parameters named
			}{
				{"contains", texts.contains, named{"kind": kindHandled, "consumer": "c", "token": "t"}},
				{"add", texts.add, named{"kind": kindHandled, "consumer": "c", "token": "t", "at": at}},
				{"create", texts.create, named{"tokens": "[]", "at": at}},
				{"remove", texts.remove, named{"tokens": "[]"}},
				{"purge", texts.purge, named{"kind": kindToken, "before": at, "batch": 10}},
				{"lock", texts.lock, named{"name": "n"}},
				{"steps", texts.steps, named{}},
				{"applied", texts.applied, named{}},
				{"record", texts.record, named{"version": 1, "name": "n", "at": at}},
			} {
				statement := plain(db).Exec(c.text, c.parameters).Statement
				text := strings.TrimSpace(statement.SQL.String())
				require.True(t, strings.HasPrefix(text, "--"), "%s: dbresolver would send it to a replica", c.name)
				for parameter := range c.parameters {
					require.Contains(t, c.text, "@"+parameter, c.name)
					if parameter != "name" || c.name != "lock" {
						require.NotContains(t, text, "@"+parameter, c.name)
					}
				}
				require.NotContains(t, c.text, "?", "GORM would take it for a parameter")
				require.GreaterOrEqual(t, len(statement.Vars), len(c.parameters), c.name)
				require.NotContains(t, text, "{{", c.name)
			}
		})
	}
}
