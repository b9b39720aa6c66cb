package config

import (
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/gorm-fanout/fanout/internal/limits"
)

// Monitor is the HTTP interface for the people who run the outbox, see package monitor.
type Monitor struct {
	// Listen is the address on which the command "fanout relay" serves it. Default: none, nothing
	// listens.
	Listen string
	// Metrics are served, too, at /metrics. Default: true.
	Metrics bool
	// ViewerTokens and OperatorTokens by the names of their holders. Holders of the first may look,
	// those of the second may act. Default: none; then anyone who reaches the address may look,
	// and no one may act.
	ViewerTokens, OperatorTokens map[string]Secret
	// CSRFKey is what all processes behind one load balancer need to have in common where the
	// application says who asks (fanout.MonitorOptions.Authorise). Default: derived from the
	// tokens; without them a random one of each process.
	CSRFKey Secret
}

// DefaultMonitor is the section where the configuration has none.
func DefaultMonitor() Monitor { return Monitor{Metrics: true} }

func (r *reader) readMonitor(o *object, cfg *Config) {
	m := &cfg.Monitor
	listen := o.text("listen", &m.Listen)
	o.boolean("metrics", &m.Metrics)
	first := map[string]string{} // where a name or a token stands already
	var viewers, operators *object
	m.ViewerTokens, viewers = o.tokens("viewer_tokens", first)
	m.OperatorTokens, operators = o.tokens("operator_tokens", first)
	key := o.text("csrf_key", (*string)(&m.CSRFKey))
	o.close()
	if n := len(m.CSRFKey); key != nil && n > 0 && n < limits.MinToken {
		o.rejectf(key, "is shorter than %d characters, so it could be guessed: use a random text, as of \"openssl rand -hex 32\"", limits.MinToken)
	}
	if listen == nil {
		return
	}
	host, port, err := net.SplitHostPort(m.Listen)
	n, portErr := strconv.ParseUint(port, 10, 16)
	if err != nil || portErr != nil {
		o.rejectf(listen, "%s is no address to listen on: use a host and a port, as in 127.0.0.1:8088", shown(listen.source))
		return
	}
	if n == 0 {
		r.warnf(listen.at, listen.path, "port 0 is any free one: the log says which")
	}
	if none := len(viewers.fields) == 0 && len(operators.fields) == 0; none && !viewers.broken && !operators.broken && !isLoopback(host) {
		o.rejectf(listen, "others can reach this address, and without tokens anyone may look at the outbox: "+
			"listen on 127.0.0.1, or set monitor.viewer_tokens or monitor.operator_tokens")
	}
}

// isLoopback tells whether a host can be reached from this machine alone. An empty one stands for
// all addresses.
func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	at, err := netip.ParseAddr(host)
	return err == nil && at.Unmap().IsLoopback()
}

// tokens reads tokens by the names of their holders. first tells where a name ("n" before it) or a
// token ("t") was met first.
func (o *object) tokens(name string, first map[string]string) (map[string]Secret, *object) {
	section := o.object(name)
	section.takesAny(namePattern.String(), textShape)
	var tokens map[string]Secret
	for _, f := range section.fields {
		if !namePattern.MatchString(f.name) {
			o.problemf(f.key, section.path, "name %s: use letters, digits, _ and -, at most 63", shown(f.name))
			continue
		}
		var token Secret
		if section.secret(f.name, &token); f.bad {
			continue
		}
		folded := strings.ToLower(f.name)
		switch {
		case len(token) < limits.MinToken:
			o.rejectf(f, "is shorter than %d characters, so it could be guessed: use a random text, as of \"openssl rand -hex 32\"", limits.MinToken)
		case first["n"+folded] != "":
			o.rejectf(f, "has the name of %s: an operator may look, too, and each name is one person's", first["n"+folded])
		case first["t"+token.Reveal()] != "":
			o.rejectf(f, "is the same token as %s: give each one of its own", first["t"+token.Reveal()])
		default:
			if tokens == nil {
				tokens = map[string]Secret{}
			}
			tokens[f.name] = token
			first["n"+folded], first["t"+token.Reveal()] = f.path, f.path
		}
	}
	return tokens, section
}
