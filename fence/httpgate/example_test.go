package httpgate_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"example.com/redlock/fence/httpgate"
)

// The server puts its handler behind a gate; a client sends all requests of one
// lease, reads included, through a client of their own.
func Example() {
	gate, err := httpgate.New(func(r *http.Request) string { return strings.TrimPrefix(r.URL.Path, "/") }, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	server := httptest.NewServer(gate.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "done")
	})))
	defer server.Close()

	first := httpgate.Open(server.Client(), "invoice/42", 33) // lease.Name(), lease.Token()
	second := httpgate.Open(server.Client(), "invoice/42", 34)
	for _, client := range []*http.Client{first, second, first} {
		resp, err := client.Get(server.URL + "/invoice/42")
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		fmt.Println(resp.StatusCode, httpgate.Refused(resp))
	}
	// Output:
	// 200 <nil>
	// 200 <nil>
	// 412 fence: exclusive token 33 is stale for "invoice/42": the gate was opened with exclusive token 34
}
