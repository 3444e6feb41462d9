import express, { type Express } from 'express';
import { executeRequestSchema } from '#protocol/schemas/execute';
import { EXECUTE_PATH } from './execute-load.js';

/**
 * What an Express app of a few lines does with an execute body: it parses and validates it with the
 * engine's own schema, and echoes it. Without what the engine leaves out too, so that it is no slower
 * than it must be.
 */
export function createExpressEcho(): Express {
  const app = express();
  app.disable('x-powered-by');
  app.disable('etag');
  app.use(express.json());
  app.post(EXECUTE_PATH, (req, res) => {
    const { success, data } = executeRequestSchema.safeParse(req.body);
    if (success) res.json(data);
    else res.status(400).json({ code: 'invalid_body' });
  });
  return app;
}
