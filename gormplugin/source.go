package gormplugin

import (
	"context"
	"database/sql/driver"
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/schema"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/internal/journal"
)

// facts are what the plugin needs to know of an aggregate's type.
type facts struct {
	name    string
	keys    []*schema.Field
	version *schema.Field // nil where the type has none
	distant bool          // the version stands behind an embedded pointer
	counted bool          // the type of the version takes part in an UPDATE, and counts it there
}

// sourceCache keeps the facts by type. The zero value is ready to use.
type sourceCache struct {
	types   sync.Map // reflect.Type -> *facts
	schemas sync.Map // of package schema
}

func (c *sourceCache) of(db *gorm.DB, t reflect.Type) (*facts, error) {
	if known, ok := c.types.Load(t); ok {
		return known.(*facts), nil //nolint:forcetypeassert // the map holds nothing else
	}
	parsed := db.Statement.Schema
	if parsed == nil || parsed.ModelType != t {
		var err error
		if parsed, err = schema.Parse(reflect.New(t).Interface(), &c.schemas, db.NamingStrategy); err != nil {
			return nil, fmt.Errorf("gormplugin: read the model %s: %w", t, err)
		}
	}
	f := &facts{name: parsed.Name, keys: parsed.PrimaryFields, version: versionField(parsed)}
	f.distant = f.version != nil && slices.ContainsFunc(f.version.StructField.Index, func(i int) bool { return i < 0 }) // GORM's mark
	if f.version != nil {
		_, f.counted = reflect.TypeAssert[schema.UpdateClausesInterface](reflect.New(f.version.IndirectFieldType))
	}
	c.types.Store(t, f)
	return f, nil
}

// versionField finds a field Version that counts: an integer, or a struct around one as
// optimistic-lock types are.
func versionField(s *schema.Schema) *schema.Field {
	field := s.FieldsByName["Version"]
	if field == nil {
		return nil
	}
	t := field.IndirectFieldType
	if t.Kind() == reflect.Struct {
		inner, ok := t.FieldByName("Int64")
		if !ok || inner.Type.Kind() != reflect.Int64 {
			return nil
		}
		return field
	}
	if !t.ConvertibleTo(reflect.TypeFor[int64]()) || t.Kind() == reflect.Float32 || t.Kind() == reflect.Float64 {
		return nil
	}
	return field
}

// source describes the instance. value may be overwritten later; the answer is not.
func (f *facts) source(ctx context.Context, value reflect.Value, expected *int64) envelope.Source {
	source := envelope.Source{Aggregate: f.name, ExpectedVersion: expected}
	if version := f.versionOf(ctx, value); version != nil {
		source.Version = *version
	}
	if len(f.keys) == 1 {
		if key, zero := f.keys[0].ValueOf(ctx, value); !zero || !madeByDatabase(f.keys[0]) {
			source.ID = formatKey(key)
		}
		return source
	}
	parts := make([]string, len(f.keys))
	for i, field := range f.keys {
		key, zero := field.ValueOf(ctx, value)
		if zero && madeByDatabase(field) {
			return source // without an id, as long as a part of it is to be made
		}
		parts[i] = formatKey(key)
	}
	source.ID = joinKey(parts)
	return source
}

// escapes are for the parts of a composite key in which its separator stands.
var escapes = strings.NewReplacer(`\`, `\\`, `,`, `\,`)

// joinKey writes the parts of a composite key as one text, another one for each key: where a comma or
// a backslash stands in a part, each of them has a backslash in front of it.
func joinKey(parts []string) string {
	key := strings.Join(parts, ",")
	if strings.Count(key, ",") < len(parts) && !strings.Contains(key, `\`) {
		return key
	}
	escaped := make([]string, len(parts))
	for i, part := range parts {
		escaped[i] = escapes.Replace(part)
	}
	return strings.Join(escaped, ",")
}

func (f *facts) versionOf(ctx context.Context, value reflect.Value) *int64 {
	if f.version == nil {
		return nil
	}
	if f.distant { // ReflectValueOf would put a struct where the application has left nil
		if version, _ := f.version.ValueOf(ctx, value); version == nil {
			return nil
		}
	}
	field := reflect.Indirect(f.version.ReflectValueOf(ctx, value))
	if !field.IsValid() {
		return nil
	}
	if field.Kind() == reflect.Struct {
		field = field.FieldByName("Int64")
	}
	version := field.Convert(reflect.TypeFor[int64]()).Int()
	return &version
}

// formatKey writes a primary key as text: numbers in decimal, bytes in hexadecimal, other types as
// they print or as they are stored.
func formatKey(key any) string {
	switch k := key.(type) {
	case string:
		return k
	case int:
		return strconv.Itoa(k)
	case int64:
		return strconv.FormatInt(k, 10)
	case uint:
		return strconv.FormatUint(uint64(k), 10)
	case []byte:
		return hex.EncodeToString(k)
	case nil:
		return ""
	}
	return formatOther(key)
}

// formatOther is formatKey for types of the application's.
func formatOther(key any) string {
	v := reflect.ValueOf(key)
	if v.Kind() == reflect.Pointer && v.IsNil() { // before any method is called on it
		return ""
	}
	switch k := key.(type) {
	case time.Time: // as it prints it has a zone, a monotonic clock and nanoseconds, which databases do not give back
		return k.UTC().Truncate(time.Microsecond).Format(time.RFC3339Nano)
	case *time.Time:
		return formatKey(*k)
	case fmt.Stringer:
		if _, valuer := key.(driver.Valuer); v.Kind() == reflect.String && !valuer { // it is stored so, whatever it prints
			return v.String()
		}
		return k.String()
	case driver.Valuer:
		if stored, err := k.Value(); err == nil {
			return formatKey(stored)
		}
	}
	if v.Kind() == reflect.Pointer {
		return formatKey(v.Elem().Interface())
	}
	return fmt.Sprint(key)
}

// noteVersions remembers, before the statement, which versions its aggregates were loaded with.
func (p *Plugin) noteVersions(db *gorm.DB, creates bool) {
	if s := db.Statement.Schema; s == nil || versionField(s) == nil {
		return
	}
	written := targets(db, creates)
	aggregates, err := p.aggregates(db, written[:]...)
	if err != nil {
		return // capture reports it
	}
	versions := make(map[*journal.Recorder]*int64, len(aggregates))
	for i := range aggregates {
		a := &aggregates[i]
		versions[a.recorder] = a.facts.versionOf(db.Statement.Context, a.value)
	}
	db.Statement.Settings.Store(keyVersions{db.Statement}, versions)
}

// writtenVersion makes the version of the source that which a statement has written, or 0 where that is not known:
// it is for the sequence, which has to ascend.
func (f *facts) writtenVersion(db *gorm.DB, recorder *journal.Recorder, source *envelope.Source) {
	if f.version == nil {
		return
	}
	switch {
	case updates(db) && f.counted: // GORM's optimisticlock adds 1 in the UPDATE, and leaves the field as it was
		if expected := source.ExpectedVersion; db.Statement.Unscoped || expected == nil || *expected != source.Version || source.Version == 0 {
			source.Version = 0 // of no row that it has compared
		} else {
			source.Version++
		}
	case updates(db) && (!recorder.KnowsVersion() || !f.writesVersion(db)), mayBeBehind(db, recorder):
		source.Version = 0
	}
}

// mayBeBehind reports whether the row of an INSERT may have been there, with a higher version.
func mayBeBehind(db *gorm.DB, recorder *journal.Recorder) bool {
	_, inserts := db.Statement.Clauses["INSERT"]
	conflict, _ := conflictOf(db.Statement)
	if !inserts || !updatesRows(db.Statement) || onMySQL(db) && leavesOutOnMySQL(conflict) {
		return false
	}
	return !conflict.UpdateAll || !recorder.KnowsVersion() && !secondHalfOfSave(db)
}

// writesVersion reports whether an UPDATE has the version among its columns.
func (f *facts) writesVersion(db *gorm.DB) bool {
	columns, restricted := db.Statement.SelectAndOmitColumns(false, true)
	if selected, told := columns[f.version.DBName]; told && !selected || !told && restricted {
		return false
	}
	values, ok := db.Statement.Dest.(map[string]any)
	if !ok {
		return true
	}
	_, column := values[f.version.DBName]
	_, field := values[f.version.Name]
	return column || field
}

// versionsOf returns what noteVersions has remembered for the statement that wrote the aggregates.
func versionsOf(db *gorm.DB, aggregates []found) map[*journal.Recorder]*int64 {
	if !slices.ContainsFunc(aggregates, func(a found) bool { return a.facts != nil && a.facts.version != nil }) {
		return nil
	}
	noted, _ := db.Statement.Settings.LoadAndDelete(keyVersions{db.Statement})
	versions, _ := noted.(map[*journal.Recorder]*int64)
	return versions
}
