import { utf8 } from '#protocol/bytes';
import { PAGE_POLICY, renderDocs } from '../../docs/page.js';
import { STYLE } from '../../docs/style.js';
import { serveFixed } from '../http/fixed-document.js';
import { READER_TEXT } from '../openapi/reader.js';
import type { Operation, OperationSpec } from '../operation.js';

const responses = (description: string, type: string): OperationSpec['responses'] => ({
  200: {
    description,
    content: { [type]: 'text' },
    headers: { ETag: 'Strong; send it back in `If-None-Match`.' },
  },
  304: { description: 'Not changed since the ETag that was sent.' },
});

export const docsOperation: Operation = {
  spec: {
    id: 'docs',
    method: 'get',
    path: '/docs',
    tag: 'Service',
    summary: 'Show the documentation page',
    scopes: [],
    produces: ['text/html'],
    responses: responses('The page, which needs no script.', 'text/html'),
    problems: [],
  },
  handler: ({ openApi }) =>
    serveFixed({
      contentType: 'text/html; charset=utf-8',
      bytes: utf8(renderDocs(openApi, READER_TEXT)),
      headers: { 'Content-Security-Policy': PAGE_POLICY },
    }),
};

export const docsStyleOperation: Operation = {
  spec: {
    id: 'docsStyle',
    method: 'get',
    path: '/docs/style.css',
    tag: 'Service',
    summary: 'Get the style sheet of the documentation page',
    scopes: [],
    produces: ['text/css'],
    responses: responses('The style sheet.', 'text/css'),
    problems: [],
  },
  handler: () => serveFixed({ contentType: 'text/css; charset=utf-8', bytes: utf8(STYLE) }),
};
