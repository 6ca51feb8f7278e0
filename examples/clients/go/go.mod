module example.com/ropewalk-client

go 1.23
