package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/internal/tenants"
	"github.com/gorm-fanout/fanout/outbox"
)

// maxTenants is how many tenants a relay takes, and maxTenantBytes how long their file may be.
const (
	maxTenants     = 2000
	maxTenantBytes = 1 << 20
)

// tenantVariables is how the variables begin that an entry may use.
const tenantVariables = "TENANT_"

// Tenants are databases beside those of the configuration, which are added and removed while a relay
// runs. A tenant that has nothing to do has no connection. Without a File, an application lists them in
// Go.
type Tenants struct {
	// File lists them in the form of the section "databases", in YAML or JSON.
	File string
	// Every is how often the file is read, or the application asked. Default: 10 s.
	Every time.Duration
	// Driver is that of tenants which name none. Default: postgres.
	Driver outbox.Dialect
	// Silent switches notifications off for tenants that do not say; "notify: false" in a file. Default:
	// false, those on PostgreSQL notify.
	Silent bool
	// MaxConns bounds the connections of a tenant that is awake, its listener aside; on PostgreSQL,
	// pool_max_conns in a DSN goes before, and on MySQL and SQL Server it is 2 at least. Default: 4.
	MaxConns int
	// IdleAfter is how long a tenant has nothing to do before it sleeps. Default: 1 m.
	IdleAfter time.Duration
	// VisitEvery is how often a tenant that sleeps is visited: the longest that its first message
	// waits. At most a minute. Default: 30 s.
	VisitEvery time.Duration
	// Visits is how many tenants are visited or opened at a time. Default: 4.
	Visits int
	// MaxAwake is how many tenants are awake at a time, and so bounds the connections. Where more have
	// something to do they take turns of VisitEvery or longer. Default: 20.
	MaxAwake int
}

// withDefaults fills in what is zero.
func (t Tenants) withDefaults() Tenants {
	t.Every = cmp.Or(t.Every, tenants.DefaultEvery)
	t.IdleAfter = cmp.Or(t.IdleAfter, tenants.DefaultIdleAfter)
	t.VisitEvery = cmp.Or(t.VisitEvery, tenants.DefaultVisitEvery)
	t.Driver = cmp.Or(t.Driver, outbox.Postgres)
	t.MaxConns = cmp.Or(t.MaxConns, defaultTenantConns)
	t.Visits = cmp.Or(t.Visits, tenants.DefaultVisits)
	t.MaxAwake = cmp.Or(t.MaxAwake, tenants.DefaultMaxAwake)
	return t
}

const (
	defaultTenantConns = 4
	maxTenantConns     = 1000
	maxVisits          = 100
)

func (r *reader) readTenants(o *object, cfg *Config) {
	t := &cfg.Tenants
	*t = t.withDefaults()
	o.text("file", &t.File)
	o.duration("every", &t.Every, time.Second)
	if driver := o.choice("driver", dialects()...); driver != "" {
		t.Driver = outbox.Dialect(driver)
	}
	notify := true
	o.boolean("notify", &notify)
	t.Silent = !notify
	o.integer("max_conns", &t.MaxConns, maxTenantConns)
	o.duration("idle_after", &t.IdleAfter, time.Second)
	o.duration("visit_every", &t.VisitEvery, time.Second)
	o.integer("visits", &t.Visits, maxVisits)
	o.integer("max_awake", &t.MaxAwake, maxTenants)
	o.close()
	switch f := o.find("visit_every"); {
	case f != nil && !f.bad && t.VisitEvery > tenants.LongestVisitEvery:
		o.rejectf(f, "is %s: use at most %s", short(t.VisitEvery), short(tenants.LongestVisitEvery))
	case len(o.fields) > 0 && !o.has("file"):
		o.warnf(o.at, o.path, "lists no tenants: set file, or pass fanout.WithTenants in Go")
	}
}

func dialects() []string {
	return []string{string(outbox.Postgres), string(outbox.SQLServer), string(outbox.MySQL), string(outbox.SQLite)}
}

// checkTenants looks at tenants that were configured in Go.
func (v *validation) checkTenants() {
	t := v.cfg.Tenants
	if t.Driver != "" {
		v.checkDriver("tenants", t.Driver)
	}
	for key, d := range map[string]time.Duration{"every": t.Every, "idle_after": t.IdleAfter, "visit_every": t.VisitEvery} {
		if d < 0 {
			v.problemf(join("tenants", key), "is %s: use a positive duration", d)
		}
	}
	if t.VisitEvery > tenants.LongestVisitEvery {
		v.problemf("tenants.visit_every", "is %s: use at most %s", t.VisitEvery, tenants.LongestVisitEvery)
	}
	for key, n := range map[string]int{"max_conns": t.MaxConns, "visits": t.Visits, "max_awake": t.MaxAwake} {
		if n < 0 {
			v.problemf(join("tenants", key), "is %d: use a positive number", n)
		}
	}
}

// TenantSettings are the settings of the tenants, with their defaults.
func (c *Config) TenantSettings() Tenants { return c.Tenants.withDefaults() }

// ReadTenants reads the file of the tenants. An entry that is wrong is refused, under its name, and costs
// no other. The error says that the file as a whole cannot be read: then nothing is known. Its entries may
// use variables that begin with TENANT_, and no others: whoever writes the list could send those anywhere.
func (c *Config) ReadTenants() (found map[string]Database, refused map[string]error, err error) {
	source, err := os.ReadFile(c.Tenants.File)
	if err != nil {
		if path, failed := filepath.Abs(c.Tenants.File); failed == nil && path != c.Tenants.File {
			return nil, nil, fmt.Errorf("config: read the tenants: %w (which is %s: a relative path begins in the working directory)", err, path)
		}
		return nil, nil, fmt.Errorf("config: read the tenants: %w", err)
	}
	lookup := c.lookup
	if lookup == nil {
		lookup = os.LookupEnv
	}
	r := &reader{file: c.Tenants.File, what: "a list of tenants", most: maxTenantBytes, hint: "; a list of tenants takes only variables that begin with " + tenantVariables}
	r.lookup = func(name string) (string, bool) {
		if !strings.HasPrefix(name, tenantVariables) {
			return "", false
		}
		return lookup(name)
	}
	content := r.parseDocument(source)
	if content != nil {
		r.collectAnchors(content)
		content = r.plain(content, "")
	}
	if content == nil || len(r.problems) > 0 {
		return nil, nil, &Error{Problems: r.problems}
	}
	section := r.open(content, "", position{1, 1})
	if section.broken {
		return nil, nil, &Error{Problems: r.problems}
	}
	entries, wrong := c.readEntries(r, section)
	found, refused, err = c.CheckTenants(entries)
	maps.Copy(wrong, refused)
	return found, wrong, err
}

// readEntries reads the tenants of a file.
func (c *Config) readEntries(r *reader, section *object) (found map[string]Database, refused map[string]error) {
	found, refused = map[string]Database{}, map[string]error{}
	settled := len(r.problems)
	r.readNamed(section, func(name string, entry *object) {
		database := Database{Driver: c.TenantSettings().Driver}
		if driver := entry.choice("driver", dialects()...); driver != "" {
			database.Driver = outbox.Dialect(driver)
		}
		entry.secret("dsn", &database.DSN)
		r.checkURL(entry, "dsn", database.DSN)
		database.Notify = c.notifies(database.Driver)
		entry.boolean("notify", &database.Notify)
		entry.close()
		if namePattern.MatchString(name) { // else it is reported
			found[name] = database
		}
	})
	for _, problem := range r.problems[:settled] { // of the mapping itself, such as a name that is there twice
		refused[cut(problem.Path)] = &Error{Problems: []Problem{problem}}
	}
	for _, problem := range r.problems[settled:] {
		entry := cut(problem.Path)
		if entry == "" || entry == "?" {
			entry = fmt.Sprintf("line %d", problem.Line)
		}
		refused[entry] = errors.Join(refused[entry], &Error{Problems: []Problem{problem}})
	}
	for name := range refused {
		delete(found, name)
	}
	return found, refused
}

// cut is the first name of a path.
func cut(path string) string {
	name, _, _ := strings.Cut(path, ".")
	return name
}

// notifies is whether a tenant notifies that does not say.
func (c *Config) notifies(driver outbox.Dialect) bool {
	return driver == outbox.Postgres && !c.Tenants.Silent
}

// CheckTenants looks at tenants that a file or the application has listed: at names, which are those of
// databases that the configuration does not have, at drivers, and at DSNs: of several names with one DSN
// the first is right. A tenant without a driver takes that of the section, and then notifies as the
// section says. The error says that there are too many; what is wrong with one is among the refused.
func (c *Config) CheckTenants(listed map[string]Database) (found map[string]Database, refused map[string]error, err error) {
	if len(listed) > maxTenants {
		return nil, nil, fmt.Errorf("config: there are %d tenants: one relay takes at most %d; give each of several relays a part of them", len(listed), maxTenants)
	}
	found, refused = make(map[string]Database, len(listed)), map[string]error{}
	taken, connected := map[string]string{}, map[Database]string{} // by name in small letters, by what is connected to
	for name := range c.Databases {
		taken[strings.ToLower(name)] = name
	}
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		database := listed[name]
		if database.Driver == "" {
			database.Driver = c.TenantSettings().Driver
			database.Notify = c.notifies(database.Driver)
		}
		other, again := taken[strings.ToLower(name)]
		same := connected[Database{Driver: database.Driver, DSN: database.DSN}]
		_, unknown := outbox.ParseDialect(string(database.Driver))
		switch {
		case !namePattern.MatchString(name):
			refused[refusedName(name)] = fmt.Errorf("name %s: use letters, digits, _ and -, at most 63", shown(name))
		case again && other == name:
			refused[name] = errors.New("a database of the configuration has this name: use another one")
		case again:
			refused[name] = fmt.Errorf("differs from %q only in capitals, which some databases do not tell apart", other)
		case unknown != nil:
			refused[name] = fmt.Errorf("driver %s: use %s", shown(string(database.Driver)), outbox.DialectNames)
		case database.DSN == "":
			refused[name] = errors.New("dsn is missing: use the connection string of the tenant's database")
		case database.Notify && database.Driver != outbox.Postgres:
			refused[name] = fmt.Errorf("notify does nothing for driver %s, which cannot notify other processes: remove it", database.Driver)
		case same != "":
			refused[name] = fmt.Errorf("has the dsn of %q: list one name for a database, which would have two sets of workers", same)
		default:
			taken[strings.ToLower(name)] = name
			connected[Database{Driver: database.Driver, DSN: database.DSN}] = name
			found[name] = database
		}
	}
	return found, refused, nil
}

// refusedName is what a name that is none is called, also in logs: it may be long, or a connection string
// where two columns were mixed up.
func refusedName(name string) string {
	if strings.HasSuffix(shown(name), notShown) {
		return notShown
	}
	return name
}
