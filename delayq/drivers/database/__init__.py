"""Jobs in a database: Laravel's own tables, on SQLite, PostgreSQL and MariaDB or MySQL."""
