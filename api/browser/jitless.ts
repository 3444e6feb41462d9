import * as z from 'zod';

// The Content-Security-Policy of the page forbids `eval`, which zod would try for each schema.
z.config({ jitless: true });
