package fanout

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	sqlmysql "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/microsoft/go-mssqldb/msdsn"

	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/outbox"
)

// hold makes the DSNs of a file those that are connected to. Whoever writes the file may be an automaton
// that anyone can talk to: it says where a tenant's database is, and gets nothing else of this machine.
func hold(found map[string]config.Database, refused map[string]error) {
	for name, database := range found {
		dsn, err := heldDSN(database.Driver, database.DSN.Reveal())
		database.DSN = config.Secret(dsn)
		if found[name] = database; err != nil {
			delete(found, name)
			refused[name] = fmt.Errorf("dsn: %w", err)
		}
	}
}

// heldDSN is a DSN of a file as its driver gets it: with options of the list alone, and with TLS unless it
// says otherwise.
func heldDSN(dialect outbox.Dialect, dsn string) (string, error) {
	switch dialect {
	case outbox.Postgres:
		return heldPostgres(dsn)
	case outbox.MySQL:
		return heldMySQL(dsn)
	case outbox.SQLServer:
		return heldSQLServer(dsn)
	case outbox.SQLite:
		if strings.Contains(dsn, "?") || strings.HasPrefix(dsn, "file:") {
			return "", errors.New("an entry takes no options of SQLite, which can attach files: use a path alone; write-ahead log and patience are set")
		}
		return dsn, nil
	}
	return "", fmt.Errorf("driver %q is not supported: use %s", dialect, outbox.DialectNames)
}

// refuseOption names an option, unless it may be a part of a password.
func refuseOption(option string, allowed []string) error {
	if !optionName.MatchString(option) {
		option = "(not shown: it may be a secret)"
	}
	return fmt.Errorf("option %q is not for an entry: remove it; allowed are %s", option, strings.Join(allowed, ", "))
}

var optionName = regexp.MustCompile(`^[A-Za-z]+([_ ][A-Za-z]+)*$`)

var (
	errForm     = errors.New("cannot be read: check its form, and escape special characters in the password")
	errFallback = errors.New("falls back to plain text unnoticed")
)

// postgresOptions are what an entry may say. None reads a file.
var postgresOptions = []string{ //nolint:gochecknoglobals // a table
	"host", "port", "user", "password", "dbname", "sslmode", "application_name", "channel_binding", "connect_timeout", "default_query_exec_mode", "pool_max_conns",
	"search_path", "target_session_attrs",
}

// postgresHeld goes before an entry, which cannot take it back but for its own options: pgx would ask the
// environment, and files in the home folder, for whatever has no value.
const postgresHeld = "host=/ port=5432 user=' ' password='' dbname='' passfile='' sslmode=verify-full sslcertmode=disable sslcert='' sslkey='' sslpassword='' " +
	"sslrootcert='' sslsni=1 sslnegotiation='' servicefile='' krbsrvname='' krbspn='' target_session_attrs=any min_protocol_version='' max_protocol_version='' " +
	"channel_binding=prefer require_auth='' connect_timeout=0 application_name=fanout "

// notAllowed is the option in an error of pgx, which quotes the DSN as well.
var notAllowed = regexp.MustCompile(`connection string key "([^"]*)" is not in ConnStringAllowedKeys`)

func heldPostgres(dsn string) (string, error) {
	if os.Getenv("PGSERVICE") != "" { // pgx cannot be kept from adding what it stands for
		return "", errors.New("PGSERVICE is set, and would apply to tenants, too: unset it, and write service=... into the dsn that needs it")
	}
	dsn, err := keywords(dsn)
	if err != nil {
		return "", err
	}
	// A socket, for which pgx reads no certificates of the environment.
	_, err = pgconn.ParseConfigWithOptions(dsn+" host=/ port=5432", pgconn.ParseConfigOptions{ConnStringAllowedKeys: postgresOptions})
	if err != nil {
		if option := notAllowed.FindStringSubmatch(err.Error()); option != nil {
			return "", refuseOption(option[1], postgresOptions)
		}
		return "", errForm
	}
	// These go to the server, and poolers refuse parameters that they do not know.
	if os.Getenv("PGOPTIONS") != "" {
		dsn = "options='' " + dsn
	}
	if os.Getenv("PGTZ") != "" {
		dsn = "timezone=UTC " + dsn
	}
	dsn = postgresHeld + dsn
	cfg, err := pgconn.ParseConfig(dsn)
	if err != nil {
		return "", errForm
	}
	plain := cfg.TLSConfig == nil
	for _, host := range append(cfg.Fallbacks, &pgconn.FallbackConfig{Host: cfg.Host, TLSConfig: cfg.TLSConfig}) {
		switch network, _ := pgconn.NetworkAddress(host.Host, host.Port); {
		case network == "unix":
			return "", errors.New("names no host, or a socket: use the name of a host")
		case plain != (host.TLSConfig == nil):
			return "", fmt.Errorf("sslmode %w: use verify-full, or disable for plain text", errFallback)
		}
	}
	if strings.TrimSpace(cfg.User) == "" || cfg.Database == "" {
		return "", errors.New("names no user, or no database: use postgres://user:password@host/database")
	}
	return dsn, nil
}

// keywords is a URL in the other form of DSNs, in which a later value replaces an earlier one.
func keywords(dsn string) (string, error) {
	if !strings.HasPrefix(dsn, "postgres://") && !strings.HasPrefix(dsn, "postgresql://") {
		return dsn, nil
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return "", errForm
	}
	options, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return "", errForm
	}
	if strings.Contains(u.Host, ",") {
		return "", errors.New("has several hosts: write host=a,b port=5432 user=... dbname=... instead of a URL")
	}
	var text strings.Builder
	put := func(option, value string) {
		if value != "" || option == "sslmode" {
			fmt.Fprintf(&text, "%s='%s' ", option, strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(value))
		}
	}
	password, _ := u.User.Password()
	put("host", u.Hostname())
	put("port", u.Port())
	put("user", u.User.Username())
	put("password", password)
	put("dbname", strings.TrimPrefix(u.Path, "/"))
	for _, option := range slices.Sorted(maps.Keys(options)) {
		for _, value := range options[option] {
			put(option, value)
		}
	}
	return text.String(), nil
}

var mysqlOptions = []string{ //nolint:gochecknoglobals // a table
	"tls", "charset", "collation", "interpolateParams", "loc", "parseTime", "readTimeout", "timeout", "writeTimeout",
}

func heldMySQL(dsn string) (string, error) {
	// The driver's rule, as some options do their work while it reads them.
	_, options, has := strings.Cut(dsn[strings.LastIndexByte(dsn, '/')+1:], "?")
	for part := range strings.SplitSeq(options, "&") {
		if option, _, _ := strings.Cut(part, "="); part != "" && !slices.Contains(mysqlOptions, option) {
			return "", refuseOption(option, mysqlOptions)
		}
	}
	cfg, err := sqlmysql.ParseDSN(dsn)
	switch {
	case err != nil:
		return "", fmt.Errorf("%w; tls is true, or false for plain text", errForm)
	case cfg.Net != "tcp":
		return "", errors.New("is not for TCP: use user:password@tcp(host:3306)/database")
	}
	switch cfg.TLSConfig {
	case "true", "skip-verify", "false":
		return dsn, nil
	case "":
		return dsn + map[bool]string{true: "&", false: "?"}[has] + "tls=true", nil
	}
	return "", fmt.Errorf("tls %w, or is the name of a setting of the application's: use true, or false for plain text", errFallback)
}

var sqlServerOptions = []string{ //nolint:gochecknoglobals // a table
	"database", "encrypt", "trustservercertificate", "hostnameincertificate", "tlsmin", "app name", "applicationintent", "connection timeout", "dial timeout", "keepalive",
	"multisubnetfailover",
}

func heldSQLServer(dsn string) (string, error) {
	u, err := url.Parse(dsn)
	if err != nil || u.Scheme != "sqlserver" || u.User.Username() == "" { // without a user it would be that of the process
		return "", errors.New("cannot be read: use sqlserver://user:password@host?database=name")
	}
	options, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return "", errForm
	}
	encrypts := false
	for option := range options {
		if encrypts = encrypts || strings.EqualFold(option, "encrypt"); !slices.Contains(sqlServerOptions, strings.ToLower(option)) {
			return "", refuseOption(option, sqlServerOptions)
		}
	}
	if !encrypts {
		options.Set("encrypt", "true")
	}
	u.RawQuery = options.Encode()
	if _, err := msdsn.Parse(u.String()); err != nil {
		return "", errForm
	}
	return u.String(), nil
}
