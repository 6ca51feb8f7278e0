// Calls the tools of examples/tools.py, with nothing but Go's standard library.
//
//	ropewalk serve examples/tools.py
//	go run .
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// Client calls the tools of a server. Goroutines may share it.
type Client struct {
	URL   string
	Token string
	HTTP  http.Client
}

// Violation says what is wrong with an argument.
type Violation struct {
	Field       string `json:"field"`
	Description string `json:"description"`
}

// CallError says why a call has no result.
type CallError struct {
	Code       string      `json:"code"`
	Message    string      `json:"message"`
	Violations []Violation `json:"violations"`
}

func (e *CallError) Error() string { return e.Code + ": " + e.Message }

type metadataKey struct{}

// WithMetadata adds what the tool reads as current_task().metadata.
func WithMetadata(ctx context.Context, metadata map[string]string) context.Context {
	return context.WithValue(ctx, metadataKey{}, metadata)
}

func (c *Client) post(ctx context.Context, tool string, arguments any, accept string) (*http.Response, error) {
	body, err := json.Marshal(arguments)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL+"/v1/tools/"+tool, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", accept)
	if c.Token != "" {
		request.Header.Set("Authorization", "Bearer "+c.Token)
	}
	if deadline, ok := ctx.Deadline(); ok {
		// The server stops the tool then, whatever becomes of the connection.
		left := max(time.Until(deadline).Seconds(), 0)
		request.Header.Set("X-Ropewalk-Timeout", strconv.FormatFloat(left, 'f', 6, 64))
	}
	metadata, _ := ctx.Value(metadataKey{}).(map[string]string)
	for name, text := range metadata {
		request.Header.Set("X-Ropewalk-Meta-"+name, text)
	}
	response, err := c.HTTP.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		return nil, failure(json.NewDecoder(response.Body))
	}
	return response, nil
}

func failure(decoder *json.Decoder) error {
	var document struct {
		Error CallError `json:"error"`
	}
	if err := decoder.Decode(&document); err != nil {
		return err
	}
	return &document.Error
}

// Call calls a tool. The context's deadline is the server's too, and cancelling the context cancels the call.
func Call[Result any](ctx context.Context, c *Client, tool string, arguments any) (result Result, err error) {
	response, err := c.post(ctx, tool, arguments, "application/json")
	if err != nil {
		return result, err
	}
	defer response.Body.Close()
	err = json.NewDecoder(response.Body).Decode(&result)
	return result, err
}

// Stream yields the items of a tool that streams. Leaving the loop cancels the call.
func Stream[Item any](ctx context.Context, c *Client, tool string, arguments any) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		var none Item
		response, err := c.post(ctx, tool, arguments, "text/event-stream")
		if err != nil {
			yield(none, err)
			return
		}
		// Closing a body that has not ended closes the connection.
		defer response.Body.Close()
		reader := bufio.NewReader(response.Body)
		event := ""
		for {
			line, err := reader.ReadString('\n')
			if len(line) == 0 {
				if err.Error() != "EOF" {
					yield(none, err)
				}
				return
			}
			name, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
			switch {
			case name == "event":
				event = text
			case name == "data" && event == "error":
				yield(none, failure(json.NewDecoder(strings.NewReader(text))))
				return
			case name == "data":
				var item Item
				if err := json.Unmarshal([]byte(text), &item); !yield(item, err) || err != nil {
					return
				}
			}
		}
	}
}

type m = map[string]any

// refusal is the status of a call that fails, and the fields that are wrong.
func refusal(err error) string {
	if err == nil {
		return "no failure"
	}
	var failed *CallError
	if !errors.As(err, &failed) {
		return fmt.Sprint(err)
	}
	words := []string{failed.Code}
	for _, violation := range failed.Violations {
		words = append(words, violation.Field)
	}
	return strings.Join(words, " ")
}

func main() {
	url := os.Getenv("ROPEWALK_URL")
	if url == "" {
		url = "http://127.0.0.1:8080"
	}
	ctx := context.Background()
	client := &Client{URL: url, Token: os.Getenv("ROPEWALK_TOKEN")}

	sum, err := Call[int](ctx, client, "add", m{"a": 2, "b": 3})
	check(err)
	fmt.Println("add:", sum)

	text, err := Call[string](WithMetadata(ctx, map[string]string{"name": "Go"}), client, "greet", m{})
	check(err)
	fmt.Println("greet:", text)

	_, err = Call[int](ctx, client, "add", m{"a": "two", "c": 3})
	fmt.Println("wrong arguments:", refusal(err))

	_, err = Call[int](ctx, &Client{URL: url}, "add", m{"a": 2})
	fmt.Println("without a token:", refusal(err))

	fmt.Print("stream:")
	for prime, err := range Stream[int](ctx, client, "primes", m{"above": 99950}) {
		check(err)
		fmt.Print(" ", prime)
	}

	fmt.Print("\nleft stream:")
	seen := 0
	for prime, err := range Stream[int](ctx, client, "primes", m{}) {
		check(err)
		fmt.Print(" ", prime)
		if seen++; seen == 3 {
			break
		}
	}

	fmt.Print("\ndeadline: ")
	limited, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	_, err = Call[string](limited, client, "wait", m{"seconds": 600})
	cancel()
	// The context and the server keep the same deadline, and either may be the first to say so.
	if errors.Is(err, context.DeadlineExceeded) {
		err = &CallError{Code: "DEADLINE_EXCEEDED"}
	}
	fmt.Println(refusal(err))

	cancelled, cancel := context.WithCancel(ctx)
	time.AfterFunc(200*time.Millisecond, cancel)
	_, err = Call[string](cancelled, client, "wait", m{"seconds": 600})
	if errors.Is(err, context.Canceled) {
		fmt.Println("cancelled: yes")
	} else {
		fmt.Println("cancelled:", err)
	}

	sum, err = Call[int](ctx, client, "add", m{"a": 2})
	check(err)
	fmt.Println("add again:", sum)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
