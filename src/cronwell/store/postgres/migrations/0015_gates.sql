-- Who went through a gate, and how often, is for workers to write: whoever acts for a tenant only says why something waits.
revoke insert, update, delete on gates, holds from cronwell_tenant;
