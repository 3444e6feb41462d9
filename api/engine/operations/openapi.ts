import { utf8 } from '#protocol/bytes';
import { exampleOpenApi, openApiSchema } from '../../openapi/self.js';
import { serveFixed } from '../http/fixed-document.js';
import type { Operation } from '../operation.js';

export const openApiOperation: Operation = {
  spec: {
    id: 'openApi',
    method: 'get',
    path: '/openapi.json',
    tag: 'Service',
    summary: 'This description',
    description: 'The same is on [/docs](/docs) for people.',
    scopes: [],
    produces: ['application/json'],
    responses: {
      200: {
        description: 'OpenAPI 3.1 of everything that is served here.',
        content: { 'application/json': openApiSchema },
        headers: { ETag: 'Strong; send it back in `If-None-Match`.' },
        example: exampleOpenApi('Engine API'),
      },
      304: { description: 'Not changed since the ETag that was sent.' },
    },
    problems: [],
  },
  handler: ({ openApi }) =>
    serveFixed({ contentType: 'application/json', bytes: utf8(JSON.stringify(openApi)) }),
};
