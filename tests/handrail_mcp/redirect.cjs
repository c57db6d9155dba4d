// Loaded into a Node server before its own code: what it sends to a host goes to a stand-in on this machine.
const http = require("node:http");
const https = require("node:https");

const host = process.env.REDIRECT_HOST;
const target = new URL(process.env.REDIRECT_TO);
const request = https.request;

https.request = (options, answer) => {
  if (options.hostname !== host) return request(options, answer);
  const to = { hostname: target.hostname, port: target.port, host: target.host };
  return http.request({ ...options, ...to, protocol: "http:", agent: undefined, agents: undefined }, answer);
};
