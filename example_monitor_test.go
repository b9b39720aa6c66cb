package fanout_test

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/glebarez/sqlite"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/monitor"
)

// An application shows the monitor in its own server, to those whom it knows.
func ExampleRelay_Monitor() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "fanout")
	check(err)
	defer os.RemoveAll(dir)
	cfg, err := config.Parse([]byte("databases: {default: {driver: sqlite}}\nbrokers: {default: {type: memory}}\n"), "fanout.yaml")
	check(err)
	db, err := gorm.Open(sqlite.Open(filepath.Join(dir, "outbox.db")), &gorm.Config{})
	check(err)
	check(fanout.Migrate(ctx, cfg, fanout.WithDB("default", db)))
	relay, err := fanout.Open(ctx, cfg, fanout.WithDB("default", db), fanout.WithLogger(slog.New(slog.DiscardHandler)))
	check(err)
	defer relay.Close()

	passwords := map[string]string{"ann": "secret"} // of each his own, since the name goes into the audit
	handler, err := relay.Monitor(fanout.MonitorOptions{
		Authorise: func(r *http.Request) (monitor.Identity, error) {
			user, password, ok := r.BasicAuth() // or whatever the application has
			if want, known := passwords[user]; !ok || !known || subtle.ConstantTimeCompare([]byte(password), []byte(want)) != 1 {
				return monitor.Identity{}, errors.New("not known")
			}
			return monitor.Identity{Name: user, Role: monitor.RoleOperator}, nil
		},
	})
	check(err)
	mux := http.NewServeMux()
	mux.Handle("/ops/outbox/", http.StripPrefix("/ops/outbox", handler))
	server := httptest.NewServer(mux)
	defer server.Close()

	get := func(password string) (status int, body map[string]any) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/ops/outbox/api/outbox", strings.NewReader(""))
		check(err)
		request.SetBasicAuth("ann", password)
		response, err := http.DefaultClient.Do(request)
		check(err)
		defer response.Body.Close()
		check(json.NewDecoder(response.Body).Decode(&body))
		return response.StatusCode, body
	}
	status, _ := get("guess")
	fmt.Println(status)
	status, body := get("secret")
	fmt.Println(status, body["default"].(map[string]any)["status"])
	// Output:
	// 401
	// 200 ok
}
