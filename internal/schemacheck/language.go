package schemacheck

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// MySQLText sets the variable that a session needs before it evaluates expressions on MySQL. A text that is
// joined to it has the collation utf8mb4_bin with the strength of a column's. COLLATE would give it more
// strength than a binary value has, and mixing both is an error.
const MySQLText = "@fanout_text = CONVERT('' USING utf8mb4) COLLATE utf8mb4_bin"

// A repeated character, which is shorter to write than the text.
type repeated struct {
	character string
	times     int
}

func (r repeated) text() string { return strings.Repeat(r.character, r.times) }

// literal writes a value of a probe: nil, int, string, repeated, uuid.UUID, []byte. It has the type
// of a text where cast converts it.
func literal(dialect Dialect, value any) string {
	switch value := value.(type) {
	case nil:
		if dialect == SQLServer { // where NULL alone is a number, which becomes no time
			return "CONVERT(nvarchar(4000), NULL)"
		}
		return "NULL"
	case int:
		if dialect == Postgres || dialect == SQLServer {
			return textLiteral(dialect, strconv.Itoa(value))
		}
		return strconv.Itoa(value)
	case string:
		return textLiteral(dialect, value)
	case repeated:
		return repeatedLiteral(dialect, value)
	case uuid.UUID:
		if dialect == MySQL {
			return bytesLiteral(dialect, value[:])
		}
		return textLiteral(dialect, value.String())
	case []byte:
		return bytesLiteral(dialect, value)
	default:
		panic(fmt.Sprintf("schemacheck: no literal for %T", value))
	}
}

func repeatedLiteral(dialect Dialect, value repeated) string {
	character := textLiteral(dialect, value.character)
	switch dialect {
	case SQLite:
		return fmt.Sprintf("printf('%%.%dc', %s)", value.times, character)
	case SQLServer:
		if value.times > 4000 { // it would be cut
			character = "CONVERT(nvarchar(max), " + character + ")"
		}
		return fmt.Sprintf("REPLICATE(%s, %d)", character, value.times)
	default:
		return fmt.Sprintf("repeat(%s, %d)", character, value.times)
	}
}

func textLiteral(dialect Dialect, text string) string {
	quoted := "'" + strings.ReplaceAll(text, "'", "''") + "'"
	switch {
	case dialect == Postgres: // whatever standard_conforming_strings says
		return "E" + strings.ReplaceAll(quoted, `\`, `\\`)
	case dialect == SQLServer:
		return "N" + quoted
	case dialect == MySQL && text != "": // whatever the session's character set and sql_mode say
		return "CONVERT(x'" + hex.EncodeToString([]byte(text)) + "' USING utf8mb4)"
	default:
		return quoted
	}
}

func bytesLiteral(dialect Dialect, value []byte) string {
	digits := hex.EncodeToString(value)
	switch dialect {
	case Postgres:
		return `E'\\x` + digits + "'"
	case SQLServer:
		return "N'" + digits + "'"
	default:
		return "x'" + digits + "'"
	}
}

// cast makes of a literal what the column would hold.
func cast(dialect Dialect, value string, of Object) string {
	kind := of.Value("type")
	switch dialect {
	case Postgres:
		return fmt.Sprintf("CAST(%s AS %s)", value, kind)
	case MySQL:
		switch class(kind) {
		case textClass:
			return fmt.Sprintf("CONCAT(@fanout_text, CONVERT(%s USING utf8mb4))", value)
		case timeClass:
			return fmt.Sprintf("CAST(%s AS DATETIME(6))", value)
		case bytesClass:
			return fmt.Sprintf("CAST(%s AS BINARY)", value)
		default:
			return fmt.Sprintf("CAST(%s AS SIGNED)", value)
		}
	case SQLServer:
		switch collation := of.Value("collation"); {
		case kind == None: // a computed column
			return fmt.Sprintf("CONVERT(int, %s)", value)
		case class(kind) == bytesClass:
			return fmt.Sprintf("CONVERT(%s, CONVERT(varbinary(max), %s, 2))", kind, value)
		case collation != None:
			return fmt.Sprintf("CONVERT(%s, %s) COLLATE %s", kind, value, collation)
		default:
			return fmt.Sprintf("CONVERT(%s, %s)", kind, value)
		}
	default: // SQLite, whose columns take anything
		return value
	}
}

// compared makes of an expression what two of them are compared as: what the column would hold, in
// bytes.
func compared(dialect Dialect, expression, kind string) string {
	switch {
	case dialect == Postgres && kind == None:
		return "CAST((" + expression + ") AS text)"
	case dialect == Postgres:
		return "CAST(CAST((" + expression + ") AS " + kind + ") AS text)"
	case dialect == MySQL: // where texts are the same or not by collations
		return "HEX(CONCAT(" + expression + "))"
	case dialect == SQLServer && kind == None:
		return "CONVERT(varbinary(8000), " + expression + ")"
	case dialect == SQLServer:
		return "CONVERT(varbinary(8000), CONVERT(" + kind + ", " + expression + "))"
	default:
		return "CAST((" + expression + ") AS TEXT)"
	}
}

// clock is 1 where a default tells the time, as the wanted one does.
func clock(dialect Dialect, live, want string) string {
	same := fmt.Sprintf("(%[2]s) <= (%[1]s) AND (%[1]s) <= (%[2]s)", live, want) // they are evaluated in this order
	if dialect == SQLServer {                                                    // which promises no order
		same = fmt.Sprintf("ABS(DATEDIFF(second, %s, %s)) < 60", live, want)
	}
	return "CASE WHEN " + same + " THEN 1 ELSE 0 END"
}

// differ is a condition on two columns, of which either may be NULL.
func differ(dialect Dialect, a, b string) string {
	switch dialect {
	case Postgres:
		return a + " IS DISTINCT FROM " + b
	case MySQL:
		return "NOT (" + a + " <=> " + b + ")"
	case SQLServer:
		return fmt.Sprintf("%[1]s <> %[2]s OR (%[1]s IS NULL AND %[2]s IS NOT NULL) OR (%[1]s IS NOT NULL AND %[2]s IS NULL)", a, b)
	default:
		return a + " IS NOT " + b
	}
}
