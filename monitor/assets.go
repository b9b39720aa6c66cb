package monitor

import (
	_ "embed"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
)

//go:embed openapi.json
var openAPI []byte

// plainPage stands for a dashboard where there is none.
const plainPage = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Fanout</title>
<h1>Fanout</h1>
<p>There is no dashboard here. The API begins at <a href="api/outbox">api/outbox</a>; <a href="openapi.json">openapi.json</a> describes it.</p>
</html>
`

func (h *Handler) getOpenAPI(w http.ResponseWriter, _ *request) error {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openAPI) // a client that has gone cannot be told
	return nil
}

func (h *Handler) getMetrics(w http.ResponseWriter, q *request) error {
	if h.cfg.Metrics == nil {
		return problemf(http.StatusNotFound, "there are no metrics here: they are switched off, or this program has none")
	}
	h.cfg.Metrics.ServeHTTP(w, q.Request)
	return nil
}

func (h *Handler) getIndex(w http.ResponseWriter, _ *request) error {
	if h.cfg.Assets == nil {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, plainPage) // a client that has gone cannot be told
		return nil
	}
	return h.asset(w, "index.html")
}

func (h *Handler) getAsset(w http.ResponseWriter, q *request) error { return h.asset(w, q.values["*"]) }

// contentTypes are those of the files that a dashboard has: what the machine knows of types may
// differ, and with nosniff a script of another type does not run.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".svg": "image/svg+xml", ".png": "image/png", ".json": "application/json", ".txt": "text/plain; charset=utf-8",
}

func (h *Handler) asset(w http.ResponseWriter, name string) error {
	missing := problemf(http.StatusNotFound, "there is no such file")
	if h.cfg.Assets == nil || !fs.ValidPath(name) || strings.ContainsAny(name, "\\:") {
		return missing
	}
	content, err := fs.ReadFile(h.cfg.Assets, name)
	if err != nil { // there is none, or it is a directory
		return missing
	}
	kind := contentTypes[path.Ext(name)]
	if kind == "" {
		kind = mime.TypeByExtension(path.Ext(name))
	}
	if kind == "" {
		kind = "application/octet-stream"
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-cache")
	_, _ = w.Write(content) // a client that has gone cannot be told
	return nil
}
