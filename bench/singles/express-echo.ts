import { createExpressEcho } from './express-echo-app.js';
import { serveAlone } from '../service/serve-alone.js';

/** Entry point of the echo as a process of its own. */
serveAlone(createExpressEcho());
