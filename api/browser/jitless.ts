import * as z from 'zod';

// Keeps zod from trying `eval` for each schema, which the Content-Security-Policy of the page forbids.
z.config({ jitless: true });
